"""`headgate bench soak`: whether what a hundred thousand requests of every kind leave behind in the gateway adds up."""
