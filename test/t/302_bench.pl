
# The benchmark runs: its short form measures every workload with every system, and what
# the workloads check of exclusion holds.  How fast anything is says nothing here.

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

# What zklock does, in proportion to each of the others.
foreach my $w (grep { !$_->{only_long} && $_->{id} ne 'W0' } @Workloads::all)
{
	my $ours = $value{ $w->{id} }{zklock}{ $w->{of} } // 0;
	cmp_ok($ours, '>', 0, "$w->{id}: zklock");
	foreach my $system (grep { $_ ne 'zklock' } @{ $w->{systems} })
	{
		cmp_ok(($value{ $w->{id} }{$system}{ $w->{of} } // 0) / ($ours || 1), '>', 0, "$w->{id}: $system");
	}
}

cmp_ok($value{W0}{zookeeper}{rate} // 0, '>', 0, 'W0: what ZooKeeper can write');
like(slurp_file("$ENV{LAB}/out/bench.svg"), qr/^<svg.*<rect.*<\/svg>$/s, 'a picture');

done_testing();
