"""From what the user gives (a script, a module, a configuration) to something that trains."""
