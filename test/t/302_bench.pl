
# The benchmark runs: its short form measures every workload with every system and form, and the
# workloads' own checks of exclusion hold.  The speed does not matter here.

use strict;
use warnings;

use Test::More;

use FindBin;
use lib "$FindBin::RealBin/../bench";
use PostgreSQL::Test::Utils;
use Workloads;

my $output = qx('$FindBin::RealBin/../bench/run' short 2>&1);
is($?, 0, 'nothing is wrong') or diag $output;
unlike($output, qr/PROBLEM/, 'locks exclude');

my %value;
foreach my $line (split /\n/, slurp_file("$ENV{LAB}/out/bench.csv"))
{
	my (undef, $workload, $system, undef, $metric, $value) = split /,/, $line;
	$value{$workload}{$system}{$metric} = $value;
}

foreach my $w (grep { !$_->{only_long} } @Workloads::all)
{
	foreach my $system (Workloads::measured($w, 1))
	{
		cmp_ok($value{ $w->{id} }{$system}{ $w->{of} } // 0, '>', 0, "$w->{id}: $Workloads::name{$system}");
	}
}

# A release of Curator's mutex wakes one client, so an acquisition takes five requests, however many
# clients queue.  The requests with which each client begins come on top.  If the clients shared an
# object, each release would wake all, and an acquisition would take more than 32 requests.
my $requests = $value{'W3-32'}{Curator}{requests};
ok(defined $requests && $requests < 16, 'W3-32: each client of Curator has lock objects of its own')
  or diag 'requests for each acquisition: ', $requests // 'none';

like($value{machine}{$_}{version}, qr/^\d+\.\d+/, "the version of $_") foreach qw(PostgreSQL ZooKeeper Curator kazoo Redis);
like(slurp_file("$ENV{LAB}/out/bench.svg"), qr/^<svg.*<rect.*<\/svg>$/s, 'a picture');

done_testing();
