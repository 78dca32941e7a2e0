"""What the roles of a flow are told: prompts, entry messages, repairs. Texts in, texts out."""
