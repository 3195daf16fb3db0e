"""A2A tasks in the control plane and in the worker: rules, engine, records, and what people see."""
