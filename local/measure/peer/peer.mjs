// Runs calls of a function that a side makes idempotent: its script follows this one and defines once. Each line of
// stdin is a call, or lets the handler of a call go on; each line of stdout says that a handler has begun, or how a call
// has ended, and how long it took.
import { createInterface } from 'node:readline';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';

const client = new DynamoDBClient({ endpoint: process.env.PEER_ENDPOINT });
const table = process.env.PEER_TABLE;
const waiting = new Map();
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

async function call({ Number: number, Key: key, Waits: waits, Fails: fails, Changes: changes, Size: size, Messages: messages }) {
  const handler = async (input) => {
    print({ Number: number, Begun: true });
    if (waits) await new Promise((resolve) => waiting.set(number, resolve));
    if (changes) input.amount += 1;
    if (fails) throw new Error('declined');
    if (!messages) return { number, text: 'x'.repeat(size) };
  };
  const begun = performance.now();
  const end = (how) => print({ Number: number, Took: Math.round((performance.now() - begun) * 1e6), ...how });
  try {
    if (messages) {
      await Promise.all(messages.map((m) => once(handler, { key: m.messageId, body: m.body })));
      end({ Of: number });
    } else {
      const { number: of } = await once(handler, { key, amount: 1 });
      end({ Of: of });
    }
  } catch (e) {
    end({ Error: e.name, Message: e.message });
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line);
  if (request.Proceed) waiting.get(request.Proceed)?.();
  else call(request);
}).on('close', () => process.exit(0));
