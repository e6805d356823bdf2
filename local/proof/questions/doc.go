// Package questions holds the tests of open questions with all that may answer them, on
// DynamoDB Local: sweeps, a webhook, an operator, the late attempt and a client's retry at
// once, over networks that lose requests and replies; and of what a sweep reads of a large
// table.
package questions
