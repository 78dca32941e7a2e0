"""Sessions in which agents answer: agents, chats, turns, and the runtime that runs turns."""
