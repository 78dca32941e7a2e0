"""The files a flow is defined by, read strictly. What is on the disk comes in as an argument."""
