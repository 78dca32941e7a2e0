"""Which sessions are meant by what somebody writes."""
