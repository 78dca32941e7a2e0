"""Operations on a whole file: rekey, schema, space, backup, repair, transfer of streams."""
