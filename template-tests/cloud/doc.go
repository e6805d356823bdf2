// Package cloud is what the CDK command line calls while it deploys: small servers
// for STS, SSM, S3 and CloudFormation behind one address. It keeps the bucket's
// objects, the stacks with their templates, outputs, exports and events, and finds
// the changes between two templates, so that a difference and a second deployment
// show what they would show in an account. It makes no resources.
//
// It is for the tests of this module. AWS_ENDPOINT_URL leads the command line here.
package cloud
