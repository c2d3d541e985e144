"""What comes in from outside: packages, plug-ins, the network; and what importing holdall does not do."""
