// Runs the queue server on 127.0.0.1 only, on a free port, for as long as
// standard input stays open. It is run with the folder that holds node_modules
// as its working directory, and prints "Listening on 127.0.0.1:port" once
// requests are taken.
//
// The server's own start-up listens on every interface. So the application is
// taken without it, and is given the address to listen on.
//
// Its argument, if there is one, is a file that keeps the messages for the next
// start: a line for each that came, and one for each that was deleted.
import { pathToFileURL } from "node:url";
import fs from "node:fs";
import path from "node:path";

const HOST = "127.0.0.1";
const dist = path.join(process.cwd(), "node_modules", "fauxqs", "dist");
const load = (file) => import(pathToFileURL(path.join(dist, ...file.split("/"))).href);
const { buildApp } = await load("app.js");
const { SqsQueue, SqsStore } = await load("sqs/sqsStore.js");

// Nothing is read from the parent but the end.
process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();

const sqsStore = new SqsStore();
// Queue URLs name the address that was asked, which resolves anywhere.
sqsStore.host = "";
const app = buildApp({ logger: false, stores: { sqsStore } });

// A long poll whose caller has disconnected must not take messages: they would be
// invisible for nothing, and one receive nearer to the dead-letter queue.
app.addHook("onSend", async (request, reply, payload) => {
  if (request.headers["x-amz-target"] !== "AmazonSQS.ReceiveMessage" || !request.raw.socket.destroyed) {
    return payload;
  }
  const queue = sqsStore.getQueue(request.body.QueueUrl);
  const messages = JSON.parse(payload).Messages ?? [];
  for (const { ReceiptHandle } of messages.reverse()) {
    const entry = queue?.inflightMessages.get(ReceiptHandle);
    if (entry) {
      if (--entry.message.approximateReceiveCount === 0) {
        entry.message.approximateFirstReceiveTimestamp = undefined;
      }
      queue.changeVisibility(ReceiptHandle, 0);
    }
  }
  return payload;
});

// A message keeps its group in a standard queue too. Its attributes, which the queue
// holds as they came, tell which message of a request it is.
const groups = new WeakMap();
app.addHook("preHandler", async ({ body }) => {
  for (const sent of body?.Entries ?? [body]) {
    if (sent?.MessageBody && sent.MessageGroupId) {
      groups.set((sent.MessageAttributes ??= {}), sent.MessageGroupId);
    }
  }
});

// With a file, messages outlive this process, however it ends.
const file = process.argv[1];
const kept = new Map(); // the lines of the messages that are there, by their ids
const text = (line) => JSON.stringify(line) + "\n";
const hold = (line) => (line.message ? kept.set(line.id, line) : kept.delete(line.id));
const note = (line) => {
  if (!file) {
    return;
  }
  hold(line);
  if (kept.size > 0) {
    fs.appendFileSync(file, text(line));
  } else {
    fs.writeFileSync(file, "");
  }
};
if (file && fs.existsSync(file)) {
  for (const line of fs.readFileSync(file, "utf8").split("\n")) {
    try {
      hold(JSON.parse(line));
    } catch {
      // Empty, or not written to its end: the sender got no answer.
    }
  }
  fs.writeFileSync(file + ".new", [...kept.values()].map(text).join(""));
  fs.renameSync(file + ".new", file);
}
const of = (name) => [...kept.values()].filter(({ queue }) => queue === name);

const { enqueue, deleteMessage, purge } = SqsQueue.prototype;
SqsQueue.prototype.enqueue = function (message) {
  message.messageGroupId ??= groups.get(message.messageAttributes);
  note({ id: message.messageId, queue: this.name, message });
  enqueue.call(this, message);
};
SqsQueue.prototype.deleteMessage = function (handle) {
  const entry = this.inflightMessages.get(handle);
  if (entry) {
    note({ id: entry.message.messageId });
  }
  return deleteMessage.call(this, handle);
};
SqsQueue.prototype.purge = function () {
  of(this.name).forEach(({ id }) => note({ id }));
  purge.call(this);
};

// A queue that is made gets the messages that it had.
const { createQueue, deleteQueue } = SqsStore.prototype;
SqsStore.prototype.createQueue = function (...args) {
  const queue = createQueue.apply(this, args);
  for (const { message } of of(queue.name)) {
    queue.sequenceCounter = Math.max(queue.sequenceCounter, Number(message.sequenceNumber ?? 0));
    enqueue.call(queue, message);
  }
  return queue;
};
SqsStore.prototype.deleteQueue = function (url) {
  this.getQueue(url)?.purge();
  return deleteQueue.call(this, url);
};

// The side that sends requests closes idle connections: a server that does breaks
// the request that is under way when it decides to.
app.server.keepAliveTimeout = 0;

await app.listen({ host: HOST, port: 0 });
console.log(`Listening on ${HOST}:${app.server.address().port}`);
