"""The texts for the roles of a flow: prompts, entry messages, repairs. Pure."""
