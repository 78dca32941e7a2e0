"""The benchmark of recall: conversations, and questions with the entries that answer them."""
