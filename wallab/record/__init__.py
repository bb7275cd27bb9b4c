"""What the lab knows as data: what is to be measured, and what was."""
