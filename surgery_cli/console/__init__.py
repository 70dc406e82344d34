"""What commands are typed and printed with: arguments, pages, formats, problems, progress."""
