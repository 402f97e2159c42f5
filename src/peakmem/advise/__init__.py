"""What would make a run fit, each piece of advice verified by running it."""
