"""The page. It reads traces and never touches a tensor."""
