"""What is on the road: the request, its plan, its attempts, its account."""
