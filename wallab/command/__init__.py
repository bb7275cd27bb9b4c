"""The lab's commands, one module each; scripts/ are thin over them."""
