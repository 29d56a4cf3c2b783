"""`headgate bench demo`: what the bundled models know, and what a right answer costs."""
