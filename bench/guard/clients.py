"""The clients: what to install, the command, the variables, and the files in their home.

Without guard a client is pointed at the provider by its own means; with guard it is started with
exactly the same command and variables, which name guard's upstream then.
"""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "scripts")
KEY = "sk-ant-fake-planted-4711"
TASK = "Run the steps with your shell tool and then report."
MODEL = "claude-sonnet-4-5"


class Client:
    def __init__(self, name, kind, group, package, command, shell=True, **more):
        self.name, self.kind, self.group, self.package = name, kind, group, package
        self.command = command  # (folder, base, home) -> (words, variables)
        self.shell = shell      # it runs the command of a tool call in a process of its own
        self.more = more

    def __repr__(self):
        return self.name


def binary(folder, name):
    return os.path.join(folder, "node_modules", ".bin", name)


def claude(folder, base, _home):
    words = [binary(folder, "claude"), "-p", TASK, "--output-format", "json", "--dangerously-skip-permissions"]
    # IS_SANDBOX: the client refuses to work for root without it.
    return words, {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def codex(folder, base, _home):
    words = [binary(folder, "codex"), "exec", "--json", "--skip-git-repo-check",
             "--dangerously-bypass-approvals-and-sandbox", "-c", f'openai_base_url="{base}/v1"',
             "-m", "gpt-5.1-codex", TASK]
    return words, {"CODEX_API_KEY": KEY, "OPENAI_API_KEY": KEY}


def gemini(folder, base, home):
    # Without a selected login the client refuses a base URL; guard must select it by itself.
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    write(home, ".gemini/settings.json", settings)
    words = [binary(folder, "gemini"), "-p", TASK, "--yolo", "--output-format", "json"]
    return words, {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": base, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def opencode(folder, base, _home):
    words = [binary(folder, "opencode"), "run", "--model", f"anthropic/{MODEL}", "--format", "json", TASK]
    config = {"autoupdate": False}
    return words, {"ANTHROPIC_BASE_URL": f"{base}/v1", "ANTHROPIC_API_KEY": KEY,
                   "OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def qwen(folder, base, _home):
    words = [binary(folder, "qwen"), "-p", TASK, "--yolo", "--output-format", "json", "--auth-type", "openai"]
    return words, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{base}/v1", "OPENAI_MODEL": "qwen3-coder-plus"}


def pi(folder, base, home):
    model = {"id": "mock-model", "name": "mock", "contextWindow": 100000, "maxTokens": 8000}
    own = {"baseUrl": f"{base}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    write(home, ".pi/agent/models.json", {"providers": {"own": own}})
    return [binary(folder, "pi"), "-p", "--mode", "json", "--provider", "own", "--model", "mock-model", TASK], {}


def aider(folder, base, _home):
    words = [os.path.join(folder, "bin", "aider"), "--model", "openai/gpt-4o", "--message", TASK, "--yes-always",
             "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-gitignore", "--no-pretty",
             "README.md"]
    return words, {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{base}/v1"}


def copilot(folder, base, _home):
    words = [binary(folder, "copilot"), "-p", TASK, "--allow-all-tools"]
    return words, {"COPILOT_PROVIDER_BASE_URL": f"{base}/v1", "COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_MODEL": "gpt-4o",
                   "COPILOT_AUTO_UPDATE": "false"}


def mini(folder, base, _home):
    words = [os.path.join(folder, "bin", "mini"), "--yolo", "--exit-immediately", "--model", "openai/gpt-4o", "--task", TASK]
    return words, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{base}/v1", "MSWEA_CONFIGURED": "true"}


def script(name, **variables):
    def command(folder, base, _home):
        if name.endswith(".py"):
            words = [os.path.join(folder, "bin", "python"), os.path.join(SCRIPTS, name)]
        else:
            # Node looks for packages next to the script.
            target = os.path.join(folder, name)
            with open(os.path.join(SCRIPTS, name)) as source, open(target, "w") as copy:
                copy.write(source.read())
            words = ["node", target]
        quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true",
                 "CREWAI_TRACING_ENABLED": "false"}
        return words, quiet | variables | {
            "TASK": TASK, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{base}/v1", "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": base, "GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": base}
    return command


def write(home, name, value):
    path = os.path.join(home, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(value, file)


CLIENTS = [
    Client("Claude Code", "npm", "claude-code", "@anthropic-ai/claude-code", claude),
    Client("codex", "npm", "codex", "@openai/codex", codex),
    Client("openai (Python)", "venv", "sdk", "openai", script("chat.py")),
    Client("openai (Python), Responses", "venv", "sdk", "openai", script("responses.py")),
    Client("anthropic (Python)", "venv", "sdk", "anthropic", script("messages.py")),
    Client("Gemini CLI", "npm", "gemini-cli", "@google/gemini-cli", gemini),
    Client("opencode", "npm", "opencode-ai", "opencode-ai", opencode),
    Client("Qwen Code", "npm", "qwen-code", "@qwen-code/qwen-code", qwen),
    Client("pi", "npm", "pi-coding-agent", "@earendil-works/pi-coding-agent", pi),
    Client("aider", "venv", "aider", "aider-chat", aider, tools=False),
    Client("Copilot CLI", "npm", "copilot", "@github/copilot", copilot),
    # It ends by a command, and takes a final text for a mistake.
    Client("mini-SWE-agent", "venv", "mini", "mini-swe-agent", mini,
           end="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo All done"),
    Client("openai (Node)", "npm", "openai", "openai", script("chat.mjs")),
    Client("anthropic (Node)", "npm", "openai", "@anthropic-ai/sdk", script("messages.mjs")),
    Client("google-genai", "venv", "sdk", "google-genai", script("genai.py")),
    Client("Vercel ai", "npm", "ai", "ai", script("vercel.mjs")),
    Client("openai-agents", "venv", "agents", "openai-agents", script("agents_sdk.py")),
    Client("LangGraph", "venv", "agents", "langgraph", script("langgraph_agent.py")),
    Client("CrewAI", "venv", "crew", "crewai", script("crew.py")),
    Client("AutoGen", "venv", "autogen", "autogen-agentchat", script("autogen_agent.py")),
]
