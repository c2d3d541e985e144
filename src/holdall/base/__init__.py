"""The ground floor: checks, locks, text for people, and the platform."""
