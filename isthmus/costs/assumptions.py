"""What every figure of a comparison assumes, in words: the fixed rules, and what the reader chose."""

from isthmus.costs.demand import DAEMONS_CPU_M, DAEMONS_MEMORY_MIB
from isthmus.costs.options import Options
from isthmus.costs.parts import HOURS_PER_MONTH, TERM_HOURS, plain


def assumptions(options: Options) -> tuple[str, ...]:
    """The assumptions of a comparison under these options."""
    said = [
        (
            "All amounts are list prices in USD times a plan, not measured. Taxes, negotiated discounts, GCP's sustained-use "
            "discount and AWS's 100 GB of free egress a month are not counted."
        ),
        _hours(options),
        _cluster(options),
        (
            f"Pods are packed by GPU, CPU, memory and pod count on what each cloud leaves allocatable, less {DAEMONS_CPU_M} "
            f"millicores and {DAEMONS_MEMORY_MIB} MiB per node for daemons (assumed). Where the workload names cards per node, "
            "only machines with exactly that many are taken."
        ),
        (
            f"Disk is gp3 on AWS and pd-balanced on GCP, object storage the standard class, for the workload's hours of a month "
            f"of {HOURS_PER_MONTH} hours."
        ),
        (
            "Egress goes to the internet from the region, GCP premium tier, priced as a month without other traffic; AWS's GB is "
            "taken as GiB."
        ),
        "GCP N1 with attached cards is the host's price plus the cards' price; other machines include their cards.",
        (
            "Idle is the part of the machines' price that no pod asks for; it is within the total. A machine's price is divided "
            "among CPU, memory and cards by what a vCPU and a GiB cost without cards in that region, the rest being the cards'."
        ),
    ]
    if "spot" in options.purchases:
        said.append(
            f"AWS spot is the feed's one figure per region; it differs by zone and moves. Lost work is not in the total: the "
            f"Spot Advisor's band, read as the part of machines taken back in a month, times half of {plain(options.checkpoint_hours)} "
            "h between checkpoints; the time to get a machine back is not counted. GCP gives no band."
        )
    if set(TERM_HOURS) & set(options.purchases):
        said.append(
            f"A commitment is paid for its whole term ({plain(TERM_HOURS['1-year'])} or {plain(TERM_HOURS['3-year'])} h), used or "
            "not; more hours are taken at the same rate. Where the catalog has no rate it is refused, not guessed."
        )
    if options.share is not None:
        said.append(
            f"Cards are shared by {options.share}: a pod that asks for one card gets one share, and is taken to be as fast as "
            "it needs to be; what a share does to speed is not known here."
        )
    if options.managed:
        said.append(
            "A managed service is taken on the same machines for the same hours, without a cluster fee. Where its source has "
            "another price of the machine than today's, its ratio is applied to today's price."
        )
    if not options.within_quota:
        said.append(
            "Quotas are those of a new account; what exceeds one is named, not refused (--within-quota refuses)."
        )
    said.append("Each part is rounded to a hundredth of a cent; totals are sums of the rounded parts.")
    return tuple(said)


def _hours(options: Options) -> str:
    if options.throughput is None:
        return "The workload takes the same hours everywhere: a faster card is not credited (--throughput does)."
    rates = "; ".join(f"{model} {plain(rate)} ({source})" for model, (rate, source) in options.throughput.rates.items())
    return f"Hours differ by card, in the ratio of the steps per second given: {rates}."


def _cluster(options: Options) -> str:
    fee = {
        "standard": "standard support, no free tier",
        "extended": "extended support where the cloud sells it",
        "free-tier": "less GKE's free tier, which covers one zonal cluster of a billing account (ours are regional)",
    }[options.control_plane]
    network = (
        "one NAT gateway with the traffic out, one load balancer" if options.network else "no NAT, no load balancer"
    )
    return (
        f"The cluster exists for the workload alone and for its hours: one control plane ({fee}), machines of one type, "
        f"{network}. Not counted: system nodes, their boot disks, traffic inside a region."
    )
