"""The commands of `dst`, one file per command or group of commands. Each adds its parser with `add`."""
