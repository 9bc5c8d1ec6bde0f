"""The page on which a user sees, corrects, takes along and erases what is remembered of them."""
