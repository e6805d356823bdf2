// Package peer compares the library with Powertools for AWS Lambda (TypeScript), which it installs from npm at
// a pinned version. Both run the same stories over one DynamoDB Local, each over a network that loses what the
// story says. `make peer` prints what came of them.
package peer
