"""What was recorded: events, roles, modules, frames; one file format; snapshot import and export."""
