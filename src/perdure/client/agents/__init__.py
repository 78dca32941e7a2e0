"""Sessions that agents answer in: agents, chats, turns and the runtime that runs them."""
