"""Work on stores as wholes, for programs: copy, back up, restore, repair, measure."""
