// RUN: tpusim opt -p 'canonicalize' %s | filecheck %s
//
// A Gather at indices of equal distance becomes a Slice.
// WEIGHT y_indices = 1 3 5

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<2x4x6xf32>) -> tensor<2x4x3xf32> {
    %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
    %y_indices = "top.Weight"() : () -> tensor<3xi32> loc("y_indices")
    %y = "top.Gather"(%x, %y_indices) {axis = 2} : (tensor<2x4x6xf32>, tensor<3xi32>) -> tensor<2x4x3xf32> loc("y")
    func.return %y : tensor<2x4x3xf32>
  }
}

// CHECK:      %0 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<2x4x6xf32>) -> tensor<2x4x6xf32> loc("x")
// CHECK-NEXT: %y = "top.Slice"(%x, %0, %0, %0) {offset = [0 : i64, 0 : i64, 1 : i64], steps = [1 : i64, 1 : i64, 2 : i64], ends = [2 : i64, 4 : i64, 6 : i64]}{{.*}} -> tensor<2x4x3xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<2x4x3xf32>
