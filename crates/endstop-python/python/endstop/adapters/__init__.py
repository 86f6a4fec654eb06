"""The loops of frameworks under the kernel, one module for each framework.

Each adapter uses the framework's own extension points, and gives one `endstop.Outcome`. Import the
module of your framework: `from endstop.adapters.langchain import EndstopMiddleware`. The limits are
keywords everywhere: `max_turns=25, max_budget_usd=2.0, timeout="10m"`.
"""
