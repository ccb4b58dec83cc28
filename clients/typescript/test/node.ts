/** A real node for tests: `headrace serve` on free ports, in a directory of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** The command, as words with spaces between; what is on the PATH unless told. */
const COMMAND = (process.env["HEADRACE_COMMAND"] ?? "headrace").split(" ");

export class NodeProcess {
  #process: ChildProcess | undefined;
  grpc = "127.0.0.1:0";
  http = "127.0.0.1:0";

  private constructor(
    readonly directory: string,
    readonly environment: Readonly<Record<string, string>>,
  ) {}

  static async start(environment: Readonly<Record<string, string>> = {}): Promise<NodeProcess> {
    const node = new NodeProcess(await mkdtemp(join(tmpdir(), "headrace-")), environment);
    await node.start();
    return node;
  }

  /** Starts it, where it was before if it has run already. */
  async start(): Promise<void> {
    const [program = "headrace", ...first] = COMMAND;
    const doors = ["--kafka", "127.0.0.1:0", "--http", this.http, "--grpc", this.grpc];
    const started = spawn(
      program,
      [...first, "serve", "--data", this.directory, "--log-level", "warning", ...doors],
      { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, ...this.environment } },
    );
    this.#process = started;
    for await (const line of createInterface({ input: started.stdout })) {
      if (line.startsWith("ready: ")) {
        this.grpc = /grpc on ([^,\s]+)/.exec(line)?.[1] ?? "";
        this.http = /http on ([^,\s]+)/.exec(line)?.[1] ?? "";
        return;
      }
    }
    throw new Error("the node ended before it was ready");
  }

  /** Ends it as nobody asked it to. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const running = this.#process;
    if (running !== undefined && running.exitCode === null && running.signalCode === null) {
      const over = new Promise((resolve) => running.once("exit", resolve));
      running.kill(signal);
      await over;
    }
  }

  async stop(): Promise<void> {
    await this.kill("SIGTERM");
    await rm(this.directory, { recursive: true, force: true });
  }
}
