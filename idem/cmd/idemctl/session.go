package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
	"github.com/idem-go/idempotency/idem/schema"
)

// session is one run of a command.
type session struct {
	*terminal
	globals Globals
	environment
	table   *backend
	records *reconcile.Reconciler
	// undated says that it is not known what time it is at the endpoint.
	undated bool
}

// environment is what is outside the terminal.
type environment struct {
	// open connects to the table, and makes no call to it. clock is the table's.
	open  func(ctx context.Context, g Globals) (*backend, error)
	clock func() time.Time
}

// outside is the environment of the real command, on a machine with this clock.
func outside(local func() time.Time) environment {
	c := &serverClock{local: local}
	return environment{
		open:  func(ctx context.Context, g Globals) (*backend, error) { return connect(ctx, g, c) },
		clock: c.now,
	}
}

func (w environment) now() time.Time { return w.clock().UTC() }

// backend is what commands work on.
type backend struct {
	store reconcile.Store
	// time asks for the endpoint's time: it is known afterwards if replies have one. ahead is
	// by how much the machine's is ahead of it.
	time func(ctx context.Context) (ahead time.Duration, known bool, err error)
	// caller says who runs the command.
	caller func(ctx context.Context) string
	// scanner reads all records, estimate says how many items that are, and how many bytes; it is nil where reading
	// them has no price.
	scanner  ledger.Store
	estimate func(ctx context.Context) (items, bytes int64, err error)
	// stored reads a record's attributes as they are; nil if there are none.
	stored func(ctx context.Context, id string) (map[string]types.AttributeValue, error)
	// letters are the dead letters of the outbox.
	letters letters
	// check checks the table.
	check func(ctx context.Context) error
}

// connect is the open of the real command.
func connect(ctx context.Context, g Globals, c *serverClock) (*backend, error) {
	switch {
	case g.Store != "" && g.Table != "":
		return nil, misuse("a store and a table are named: use --store (IDEM_STORE) or --table (IDEM_TABLE), but not both")
	case g.Store != "":
		return connectTo(ctx, g, c)
	case g.Table == "":
		return nil, misuse("no table is named: use --table, or set IDEM_TABLE; or --store for a store that is not DynamoDB")
	}
	cfg, err := configure(ctx, g, c)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: g.Endpoint})
	if err != nil {
		return nil, err
	}
	o := &dynamostore.Options{WithoutTransactions: g.WithoutTransactions}
	if len(g.KMSKey) > 0 {
		if o.Sealer, err = kmsseal.New(kms.NewFromConfig(cfg),
			kmsseal.Options{Key: g.KMSKey[0], FormerKeys: g.KMSKey[1:], Context: g.KMSContext}); err != nil {
			return nil, misuse("--kms-key: %v", err)
		}
	} else if len(g.KMSContext) > 0 {
		return nil, misuse("--kms-context is of a KMS key: name it with --kms-key")
	}
	store, err := dynamostore.NewAdminStore(client, g.Table, o)
	if err != nil {
		return nil, err
	}
	scanner, err := dynamostore.NewScanner(client, g.Table,
		&dynamostore.Options{AttemptTimeout: scanTime, Budget: 10 * scanTime, Sealer: o.Sealer})
	if err != nil {
		return nil, err
	}
	letters, err := dynamostore.NewOutbox(client, g.Table, nil)
	if err != nil {
		return nil, err
	}
	return &backend{
		store: followed{store, c}, scanner: scanner, letters: letters,
		time: func(ctx context.Context) (time.Duration, bool, error) {
			_, err := store.Get(ctx, "idemctl") // no record's id
			ahead, known := c.fast()
			if known {
				err = nil // a refusal has a Date too, and the command meets it itself
			}
			return ahead, known, err
		},
		caller: func(ctx context.Context) string {
			if !g.local() || hasKeys() && !g.here() {
				if arn := callerIdentity(ctx, cfg); arn != "" {
					return arn
				}
			}
			return userName()
		},
		check: func(ctx context.Context) error { return dynamostore.Check(ctx, client, g.Table) },
		stored: func(ctx context.Context, id string) (map[string]types.AttributeValue, error) {
			got, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &g.Table, ConsistentRead: aws.Bool(true),
				Key: map[string]types.AttributeValue{
					schema.PK: &types.AttributeValueMemberS{Value: id},
					schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
				}})
			if err != nil {
				return nil, err
			}
			return got.Item, nil
		},
		estimate: func(ctx context.Context) (int64, int64, error) {
			d, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &g.Table})
			if err != nil || d.Table == nil {
				return 0, 0, err
			}
			return aws.ToInt64(d.Table.ItemCount), aws.ToInt64(d.Table.TableSizeBytes), nil
		},
	}, nil
}

// userName is who runs the command, as this machine knows them.
func userName() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	return name
}

// configure reads the AWS configuration.
func configure(ctx context.Context, g Globals, c *serverClock) (aws.Config, error) {
	opts := []func(*config.LoadOptions) error{config.WithAPIOptions([]func(*middleware.Stack) error{c.listen})}
	if g.Region != "" {
		opts = append(opts, config.WithRegion(g.Region))
	}
	if g.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(g.Profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	switch {
	case err != nil:
		return aws.Config{}, misuse("the AWS configuration cannot be read: check --profile and AWS_PROFILE: %v", err)
	case cfg.Region != "":
	case g.Endpoint != "":
		cfg.Region = "local"
	default:
		return aws.Config{}, misuse("no region is set: use --region, or set AWS_REGION")
	}
	if g.local() && !hasKeys() {
		// It takes any credentials, and a machine without any need not search for them.
		cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
		})
	}
	return cfg, nil
}

// local reports whether the endpoint may be a DynamoDB Local: one of AWS, such as that of a VPC,
// has TLS, and who names a profile is the one of the profile.
func (g Globals) local() bool {
	env, err := config.NewEnvConfig()
	profile := g.Profile != "" || err == nil && env.SharedConfigProfile != ""
	return g.Endpoint != "" && !profile && !strings.HasPrefix(strings.ToLower(g.Endpoint), "https:")
}

// here reports whether the endpoint is on this machine.
func (g Globals) here() bool {
	u, err := url.Parse(g.Endpoint)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// hasKeys reports whether the environment has credentials.
func hasKeys() bool {
	env, err := config.NewEnvConfig()
	return err == nil && env.Credentials.HasKeys()
}

// scanTime is for a page of 1 MB.
const scanTime = 5 * time.Second

// callerIdentity is the ARN of the one whose credentials these are; empty if AWS does not say.
func callerIdentity(ctx context.Context, cfg aws.Config) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, nil)
	if err != nil {
		return ""
	}
	return aws.ToString(who.Arn)
}

// connect connects to the table for the command. It asks for the time, unless the command needs none.
func (s *session) connect(ctx context.Context, command any) (err error) {
	if s.table, err = s.open(ctx, s.globals); err != nil {
		return err
	}
	switch command.(type) {
	case *checkCmd, *deadListCmd:
	default:
		if err := s.askTime(ctx); err != nil {
			return err
		}
	}
	s.records, err = reconcile.New(s.table.store, &reconcile.Options{Now: s.clock})
	return err
}

// who makes a change: the flag, or else whose credentials these are. There are no changes while the
// time is not known.
func (s *session) who(ctx context.Context, given string) (string, error) {
	if s.undated {
		return "", errUndated
	}
	if given = strings.TrimSpace(given); given != "" {
		return given, nil
	}
	if who := strings.TrimSpace(s.table.caller(ctx)); who != "" {
		return who, nil
	}
	return "", misuse("it is not known who makes this change: use --who")
}

func (s *session) json() bool { return s.globals.Output == "json" }
