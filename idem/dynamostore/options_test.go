package dynamostore

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
)

func TestNewFindsMistakes(t *testing.T) {
	client := must(NewClient(aws.Config{Region: "eu-central-1"}, nil))
	options := func(o Options) error { _, err := New(client, "t", &o); return err }
	ofClient := func(o ClientOptions) error { _, err := NewClient(aws.Config{Region: "x"}, &o); return err }
	for _, tc := range []struct {
		name string
		make func() error
		says string
	}{
		{"nil client", func() error { _, err := New(nil, "t", nil); return err }, "NewClient"},
		{"nil *dynamodb.Client", func() error { _, err := New(nilClient(), "t", nil); return err }, "NewClient"},
		{"empty table", func() error { _, err := New(client, "", nil); return err }, "name the table"},
		{"region", func() error { _, err := NewClient(aws.Config{}, nil); return err }, "AWS_REGION"},
		{"attempt", func() error { return options(Options{AttemptTimeout: -1}) }, "AttemptTimeout"},
		{"attempt without a unit", func() error { return options(Options{AttemptTimeout: 1}) }, "AttemptTimeout is 1ns"},
		{"budget", func() error { return options(Options{Budget: -1}) }, "Budget"},
		{"budget without a unit", func() error { return options(Options{Budget: 5}) }, "Budget is 5ns"},
		{"result", func() error { return options(Options{MaxResult: -1}) }, "MaxResult"},
		{"result too large", func() error { return options(Options{MaxResult: resultLimit + 1}) }, "MaxResult"},
		{"endpoint", func() error { return ofClient(ClientOptions{Endpoint: "127.0.0.1:8000"}) }, "Endpoint"},
		{"conns", func() error { return ofClient(ClientOptions{MaxIdleConns: -1}) }, "MaxIdleConns"},
		{"dial", func() error { return ofClient(ClientOptions{DialTimeout: -1}) }, "DialTimeout"},
		{"dial without a unit", func() error { return ofClient(ClientOptions{DialTimeout: 1}) }, "DialTimeout is 1ns"},
	} {
		t.Run(tc.name, func(t *testing.T) { says(t, tc.make(), tc.says) })
	}
}
