// Package quiet keeps out what CDK's runtime prints and a program that imports package infra can do nothing
// about. What the environment says already stays as it is.
//
// The runtime takes its environment when packages of CDK's are initialized, so this package must be
// before them. It imports os alone: Go initializes packages in the order of their paths, each as soon as
// its imports are, and CDK's need os/exec, whose path comes after this one.
package quiet

import "os"

func init() {
	for name, value := range map[string]string{
		// The majors of Node that the runtime calls end-of-life, and works with.
		"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
		// CDK's table uses two deprecated properties of CDK's (https://github.com/aws/aws-cdk/pull/38806).
		"JSII_DEPRECATED": "quiet",
	} {
		if _, set := os.LookupEnv(name); !set {
			os.Setenv(name, value)
		}
	}
}
