"""How long data lives: archive what nobody uses, remove what is old, erase what a user wants erased."""
