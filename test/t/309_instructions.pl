
# What is counted in instructions, whatever else the machine does: to ask whether the server
# leads costs about as much as to ask whether a lock is held.

use strict;
use warnings;

use FindBin;
use Test::More;

my $output = qx('$FindBin::RealBin/../bench/instructions' short 2>&1);
is($?, 0, 'zk_is_leader costs no more than zk_lock_is_held and a tenth') or diag $output;
my %count = $output =~ /^(\w+)\(\S* +(\d+) instructions/mg;
cmp_ok($count{$_} // 0, '>', 100, "$_ was counted") foreach qw(zk_is_leader zk_lock_is_held);
note $output;

done_testing();
