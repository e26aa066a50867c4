
# One run with a seed, as test/faults/run wants it: SEED, FAULT_SECONDS, and DIRECTORY, where the
# history is kept if there is something wrong with it.  A run that is void is skipped.

use strict;
use warnings;

use File::Temp;
use Test::More;

use FaultRun;

my ($seed, $seconds, $directory) = @ENV{qw(SEED FAULT_SECONDS DIRECTORY)};
my $run = FaultRun->new($seed, $seconds, $directory);
my %settings = %{ $run->{schedule}{settings} };
foreach my $name (grep { ref $settings{$_} } keys %settings)
{
	my $of = delete $settings{$name};
	$settings{"${name}_$_"} = $of->{$_} foreach keys %$of;
}
note "seed $seed: " . join ' ', map { "$_=$settings{$_}" } sort keys %settings;
my @problems = $run->run;
my %figures = $run->figures;
note "seed $seed: " . join ' ', map { "$_=$figures{$_}" } sort keys %figures;
my @void = $run->void;
diag "void: $_" foreach @void;
diag "problem: $_" foreach @problems;
diag $_ foreach $run->excerpt;
SKIP:
{
	$File::Temp::KEEP_ALL = 1 if @void;
	skip "void, seed $seed proves nothing", 1 if @void;
	ok(!@problems, "seed $seed");
}
done_testing();
