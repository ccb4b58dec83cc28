/** A client for Headrace, the durable message queue. See the README for its words. */
export {
  connect,
  type ConnectOptions,
  type ConsumeOptions,
  Headrace,
  type LeaseOptions,
  type TailOptions,
} from "./client.js";
export * from "./errors.js";
export { Message, type NewMessage, type Place, type Priority, StreamRecord } from "./message.js";
export type { HeaderValue } from "./values.js";
