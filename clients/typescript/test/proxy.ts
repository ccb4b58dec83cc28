/** A proxy of TCP that breaks connections, or swallows what one side says, when told to. */
import { connect, createServer, type Server, type Socket } from "node:net";

export class CutProxy {
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  #onConnection: () => void = () => {};
  address = "";
  /** From now on nothing that a node says arrives; the same for a client. */
  swallowsAnswers = false;
  swallowsRequests = false;

  private constructor(target: string) {
    const [host = "", port] = target.split(":");
    this.#server = createServer((client) => {
      const node = connect(Number(port), host);
      const pair: [Socket, Socket] = [client, node];
      this.#pairs.add(pair);
      client.on("data", (data) => void (this.swallowsRequests || node.write(data)));
      node.on("data", (data) => void (this.swallowsAnswers || client.write(data)));
      for (const socket of pair) {
        socket.on("error", () => {});
        socket.on("close", () => {
          this.#pairs.delete(pair);
          pair.forEach((each) => each.destroy());
        });
      }
      this.#onConnection();
    });
  }

  static async start(target: string): Promise<CutProxy> {
    const proxy = new CutProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    const bound = proxy.#server.address() as { port: number };
    proxy.address = `127.0.0.1:${bound.port}`;
    return proxy;
  }

  /** Breaks every connection; resolves when the client has come back. */
  async cut(): Promise<void> {
    const back = new Promise<void>((resolve) => (this.#onConnection = resolve));
    this.swallowsAnswers = false;
    this.swallowsRequests = false;
    for (const [client, node] of this.#pairs) {
      client.resetAndDestroy();
      node.resetAndDestroy();
    }
    await back;
  }

  async stop(): Promise<void> {
    for (const pair of this.#pairs) {
      pair.forEach((each) => each.destroy());
    }
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
