// Runs calls of a function that Powertools makes idempotent. Each line of stdin is a call, or lets the handler of a
// call go on; each line of stdout says that a handler has begun, or how a call has ended.
import { createInterface } from 'node:readline';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';

const client = new DynamoDBClient({
  endpoint: process.env.PEER_ENDPOINT,
  region: 'eu-central-1',
  credentials: { accessKeyId: 'local', secretAccessKey: 'local' },
});
const waiting = new Map();
const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

async function call({ Number: number, Key: key, Remaining: remaining, Waits: waits, Fails: fails, Changes: changes, Size: size }) {
  const config = new IdempotencyConfig({});
  config.registerLambdaContext({ getRemainingTimeInMillis: () => remaining });
  const handler = async (input) => {
    print({ Number: number, Begun: true });
    if (waits) await new Promise((resolve) => waiting.set(number, resolve));
    if (changes) input.amount += 1;
    if (fails) throw new Error('declined');
    return { number, text: 'x'.repeat(size) };
  };
  const run = makeIdempotent(handler, {
    config,
    persistenceStore: new DynamoDBPersistenceLayer({ tableName: process.env.PEER_TABLE, awsSdkV3Client: client }),
  });
  try {
    const { number: of } = await run({ key, amount: 1 });
    print({ Number: number, Of: of });
  } catch (e) {
    print({ Number: number, Error: e.name, Message: e.message });
  }
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line);
  if (request.Proceed) waiting.get(request.Proceed)?.();
  else call(request);
}).on('close', () => process.exit(0));
