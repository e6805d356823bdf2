// What Powertools makes of a handler.
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';

const config = new IdempotencyConfig({});
const persistenceStore = new DynamoDBPersistenceLayer({ tableName: table, awsSdkV3Client: client });

function once(handler, input) {
  config.registerLambdaContext({ getRemainingTimeInMillis: () => Number(process.env.PEER_REMAINING) });
  return makeIdempotent(handler, { config, persistenceStore })(input);
}
