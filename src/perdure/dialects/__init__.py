"""What the session files of pi and Operator are made of, for all who read or write them."""
