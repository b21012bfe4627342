// The pods' network between the nodes of a kind cluster: flannel's host-gw backend over the nodes' own subnets, as a
// program of our own. Flannel's main takes in every backend it has, and those for single clouds need modules that the Go
// proxies don't all carry.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

const (
	annotations = "flannel.alpha.coreos.com"
	// resync is how often, in seconds, missing rules are put back; flannel's own default.
	resync = 5
	// connectTries bounds the wait for the API server; one that fails takes ten seconds.
	connectTries = 30
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// connect waits for the API server: its service's address works only once kube-proxy runs on this node, too.
func connect(ctx context.Context) (manager subnet.Manager, err error) {
	for range connectTries {
		manager, err = kube.NewSubnetManager(ctx, "", "", annotations, "/etc/kube-flannel/net-conf.json", true)
		if err == nil || ctx.Err() != nil {
			return manager, err
		}
		log.Printf("not connected yet: %v", err)
		time.Sleep(time.Second)
	}
	return manager, err
}

// run keeps routes to the other nodes' pods, and lets pods out under their node's address, until ctx ends.
func run(ctx context.Context) error {
	// In a pod: the API server from its environment, the node from NODE_NAME, the network from this file.
	manager, err := connect(ctx)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	way, err := ipmatch.LookupExtIface("", "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	routes, err := backend.NewManager(ctx, manager, way).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	network, err := routes.RegisterNetwork(ctx, &work, config)
	if err != nil {
		return err
	}
	rules := &nftables.NFTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	err = rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network, ip.IP6Net{}, ip.IP6Net{}, network.Lease(), resync, false)
	if err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	work.Add(1)
	go func() {
		defer work.Done()
		network.Run(ctx)
	}()
	log.Print("flannel runs")
	err = manager.CompleteLease(ctx, network.Lease(), &work)
	work.Wait()
	return err
}
