// Package peer compares the library with Powertools for AWS Lambda (TypeScript), which it installs from npm at
// a pinned version, and with the least that is written by hand. All of them are processes over one DynamoDB Local.
// They run the same stories, each over a network that loses what the story says, and the same calls, which
// it measures. `make peer` prints both.
package peer
