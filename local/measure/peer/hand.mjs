// The least that is written by hand. A call that dies blocks its key until DynamoDB deletes the item, and inputs are
// not compared.
import { ConditionalCheckFailedException, PutItemCommand, UpdateItemCommand } from '@aws-sdk/client-dynamodb';

async function once(handler, input) {
  const id = { S: input.key };
  try {
    await client.send(new PutItemCommand({
      TableName: table, Item: { id, expiration: { N: `${Math.floor(Date.now() / 1000) + 3600}` } },
      ConditionExpression: 'attribute_not_exists(id)', ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
    }));
  } catch (e) {
    if (e instanceof ConditionalCheckFailedException && e.Item.answer) return JSON.parse(e.Item.answer.S);
    throw e;
  }
  const answer = await handler(input);
  await client.send(new UpdateItemCommand({
    TableName: table, Key: { id }, UpdateExpression: 'SET answer = :answer',
    ExpressionAttributeValues: { ':answer': { S: JSON.stringify(answer ?? null) } },
  }));
  return answer;
}
