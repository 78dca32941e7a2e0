"""Programs that look after this repository. None of them is part of the package."""
