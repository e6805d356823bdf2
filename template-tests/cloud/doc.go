// Package cloud is what the CDK command line calls while it deploys: STS, SSM, S3 and CloudFormation behind
// one address. It keeps the bucket's objects, and the stacks with the templates that were sent last, so that
// a difference and a second deployment show what they would show in an account. It does not read the
// templates, and makes no resources.
//
// It is for the tests of this module. AWS_ENDPOINT_URL leads the command line here.
package cloud
