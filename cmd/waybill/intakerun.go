package main

import (
	"context"
	"net/url"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-run/waybill/internal/instance"
	"github.com/waybill-run/waybill/internal/intakerun"
	"github.com/waybill-run/waybill/internal/schemaregistry"
)

// intakeWorkersMax bounds --workers.
const intakeWorkersMax = 256

// registryFlags name a schema registry.
type registryFlags struct{ url, user, passwordFile string }

func (r *registryFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.url, "schema-registry", "", "URLs of the schema registry for intakes of the format avro, separated by commas")
	f.StringVar(&r.user, "schema-registry-user", "", "user of the schema registry")
	f.StringVar(&r.passwordFile, "schema-registry-password-file", "", "file with the password of --schema-registry-user")
}

// open returns the client of the registry; nil: none is given.
func (r *registryFlags) open() (intakerun.Schemas, error) {
	if r.url == "" {
		if r.user != "" || r.passwordFile != "" {
			return nil, usage("--schema-registry-user and --schema-registry-password-file need --schema-registry")
		}
		return nil, nil
	}
	o := schemaregistry.Options{URLs: strings.Split(r.url, ","), User: r.user}
	for _, text := range o.URLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, usage("--schema-registry %q: give URLs such as http://registry:8081", text)
		}
	}
	if r.passwordFile != "" {
		password, err := readSecret("schema-registry-password-file", r.passwordFile)
		if err != nil {
			return nil, err
		}
		o.Password = strings.TrimRight(string(password), "\r\n")
	}
	client, err := schemaregistry.Open(o)
	if err != nil {
		return nil, usage("--schema-registry: %w", err)
	}
	return client, nil
}

func newIntakeRun() *cobra.Command {
	var r roleFlags
	var registry registryFlags
	var o instance.IntakeOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run intakes: they turn records of other applications' topics into submissions and signals",
		Long: `Run the intakes that were applied, or those of --intake. Definitions that are applied, paused or deleted later take
effect at once. A record's submission and the position after it are in one transaction, so each record counts once
even if a process dies.

Run one or more processes: Kafka's consumer group protocol divides the partitions of each topic among them.`,
		Example: `  waybill intake run --brokers kafka:9092 --instance i1 --schema-registry http://registry:8081 --metrics-listen :9105`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Workers < 1 || o.Workers > intakeWorkersMax {
				return usage("--workers %d: must be 1 to %d", o.Workers, intakeWorkersMax)
			}
			if err := r.checkTransaction("intake"); err != nil {
				return err
			}
			schemas, err := registry.open()
			if err != nil {
				return err
			}
			o.Schemas = schemas
			return r.runRole(cmd, "intake", func(ctx context.Context, n *instance.Instance) error {
				n.StartIntakes(ctx, o)
				return nil
			})
		},
	}
	r.flags(cmd, false)
	registry.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.Only, "intake", nil, "name of an intake to run (repeatable) (default: all)")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "number of workers of each intake; workers beyond the number of its topic's partitions are idle")
	f.DurationVar(&r.transaction, "transaction-timeout", 0, "time after which brokers roll back the transaction of a process that died (default 10s)")
	return cmd
}
