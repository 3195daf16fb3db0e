"""The control plane: composition root and thin routes."""
